"""Fine-tuning: `minibert finetune TASK` and `minibert evaluate TASK`."""
