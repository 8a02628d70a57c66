"""Storage for the bytes of large files: a folder, or a bucket that speaks S3."""
