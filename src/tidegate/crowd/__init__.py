"""For the day of the sale: who may come in, and what is popular."""
