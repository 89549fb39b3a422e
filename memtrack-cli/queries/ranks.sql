-- What each rank held on each device: its peak, what was reserved, when and in which phase, and what was wasted.
SELECT job, rank, name AS device, peak_bytes, peak_seconds, peak_phase, peak_operator, reserved_bytes, waste_bytes,
  end_bytes, out_of_memory
FROM devices
ORDER BY job, rank, is_host, is_pinned, device
