"""The archive: the reports of ``bits`` layouts, kept in Parquet files so that they can be counted again.

Of an ``index`` layout the tally is the archive. Without order and time, a set of indices is its histogram.
"""
