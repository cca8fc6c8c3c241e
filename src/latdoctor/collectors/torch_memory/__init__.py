"""What PyTorch's allocator tells of itself: memory_stats and snapshots."""
