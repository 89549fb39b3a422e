use strict;
use warnings;
use threads;
use threads::shared;
use POSIX ();

$| = 1;
my $sum :shared = 0;
my @threads = map { my $n = $_; threads->create(sub { my @all = map { "x" x $_ } 1 .. 300; lock($sum); $sum += @all * $n; return $n; }) } 1 .. 8;
print "threads ", join(",", map { $_->join } @threads), " $sum\n";
for my $n (1 .. 30) {
    my $pid = fork;
    if (!$pid) { my %words = map { $_ => [1 .. $_] } 1 .. 50; exit(keys(%words) == 50 ? $n : 99); }
    waitpid($pid, 0);
    print $? >> 8, " ";
}
print "\n";
my $pid = fork;
if (!$pid) { sleep 1000; }
kill KILL => $pid;
waitpid($pid, 0);
print "signal ", $? & 127, "\n";
local $SIG{ALRM} = sub { die "alarm\n" };
eval { alarm 1; select(undef, undef, undef, 60); };
print "died: $@";
open(my $in, "-|", "sh", "-c", 'echo one; echo two; exit 5') or die;
my @lines = <$in>;
close $in;
print scalar(@lines), " ", $? >> 8, "\n";
print `echo captured; exit 3`, $? >> 8, "\n";
my $text = join ",", map { sprintf "%05d", ($_ * 7919) % 100003 } 1 .. 20000;
my %count;
$count{$_}++ for split /,/, $text;
print scalar(keys %count), "\n";
END { print "the end block ran\n"; }
POSIX::_exit(0) if @ARGV;
die "intended\n";
