"""The book: the documents of the repository as a site with search."""
