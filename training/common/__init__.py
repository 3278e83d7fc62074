"""What all folders of `training/` use: files, printing, processes, precision, fields of configs."""
