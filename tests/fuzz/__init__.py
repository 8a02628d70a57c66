"""Fuzz targets: what reads bytes of strangers, with the property that it must keep for any bytes.

`targets` has them, `seeds` what they begin with, `fuzz_*.py` each of them as a program for libFuzzer (atheris), in the
layout that OSS-Fuzz expects. `make fuzz` runs each for a minute, and keeps what it finds in build/fuzz.
"""
