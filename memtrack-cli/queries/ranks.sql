-- Memory of each rank on each device: its peak, the reserved bytes, when and in which phase, and the wasted bytes.
SELECT job, rank, name AS device, peak_bytes, peak_seconds, peak_phase, peak_operator, reserved_bytes, waste_bytes,
  end_bytes, out_of_memory
FROM devices
ORDER BY job, rank, is_host, is_pinned, device
