"""The kernel in a world made from one seed: crashes, stalls, clock jumps, lost answers, full disks."""
