"""Console, plots, reports, TensorBoard. They take plain values; the caller knows which of them are private.

This room computes nothing from records or votes. `report.write_report` is for `release/` and takes released values only;
`report.write_private_report` is for `private/`.
"""
