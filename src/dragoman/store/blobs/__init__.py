"""Where the bytes of large files are kept: a folder, or a bucket that speaks S3."""
