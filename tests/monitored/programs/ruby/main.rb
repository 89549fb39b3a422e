threads = (1..8).map { |n| Thread.new { (1..2000).map { |i| "text #{i * n}" }.sum(&:size) } }
puts "threads #{threads.map(&:value).join(' ')}"
fiber = Fiber.new { 1000.times { |i| Fiber.yield i }; :end }
puts "fibers #{(1..1001).map { fiber.resume }.last}"
20.times { |i| fork { GC.start; exit!(i) } }
puts "forks #{Process.waitall.map { |_, status| status.exitstatus }.sort.join(' ')}"
puts "popen #{IO.popen(['cat'], 'r+') { |io| io.puts 'through'; io.close_write; io.read }}"
puts `echo captured; exit 3`, $?.exitstatus
pid = spawn('sleep', '1000')
Process.kill(:KILL, pid)
Process.wait(pid)
puts "signal #{$?.termsig}"
trap(:USR1) { puts 'trapped' }
Process.kill(:USR1, Process.pid)
sleep 0.01
100.times { ('x' * 100_000) + 'y' }
GC.compact
puts "objects #{GC.count.positive?}"
at_exit { puts 'at exit' }
begin
  spawn('/nonexistent/program')
rescue SystemCallError => e
  puts e.message
end
abort 'intended'
