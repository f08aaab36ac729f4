"""From profiler files to rows of a performance database."""
