"""What all rooms use: files, printing, processes, precision, fields of configs."""
