"""The database behind the driver: its address, the connections to it, its checks and migrations, its errors and time.

The driver's tables are beside this package; here nothing is known of tasks.
"""
