"""The reader of users' tables, for training and for audits."""
