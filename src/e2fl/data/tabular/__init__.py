"""The user's own tables: CSV and Parquet files."""
