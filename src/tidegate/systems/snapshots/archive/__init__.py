"""What subjects were: the old of it in files that anybody can read, out of the database."""
