"""Pages as data: blocks that are written once and shown as Markdown or as one HTML file with its charts inside."""
