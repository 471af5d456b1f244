"""Files to examples: published data sets, tables of one's own, columns and JSON."""
