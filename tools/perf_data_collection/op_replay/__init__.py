"""Running the rows of a performance database again, one small file a kernel beside one framework."""
