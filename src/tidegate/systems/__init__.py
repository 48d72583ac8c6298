"""The systems of the product, one folder each. Systems do not import each other."""
