"""What operators write and how it is read: kinds of values, forms, bodies, topology files."""
