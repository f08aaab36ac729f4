"""The measuring side: from profiles and replays to a performance database."""
