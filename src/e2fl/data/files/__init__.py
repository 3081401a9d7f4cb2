"""Files of the data sets: where they are, downloads, archives."""
