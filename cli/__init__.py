"""What a person types: parse, call, print."""
