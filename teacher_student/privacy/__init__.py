"""Privacy as numbers: neighbours, costs, calibration, composition, certificates. No data, no noise, no networks."""
