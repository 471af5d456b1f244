"""What people look at: model cards, pages and pictures; a template each."""
