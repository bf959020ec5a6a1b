"""Reports, plots and galleries of what a run did."""
