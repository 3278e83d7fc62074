"""`minibert finetune`: one run for every task; what differs between them stands in `tasks`."""
