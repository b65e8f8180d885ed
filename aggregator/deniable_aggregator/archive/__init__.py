"""The archive: the reports of ``bits`` layouts in Parquet files, so that they can be counted again.

Reports of an ``index`` layout have no files. Without order and time they are their histogram, which the tally has.
"""
