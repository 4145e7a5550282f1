#!/usr/bin/perl
# A CGI program in Perl: prints its environment and what it was sent.
use strict;
use warnings;

print "Content-Type: text/plain\n\n";
print "$_=$ENV{$_}\n" for sort keys %ENV;
my $length = 0;
while (my $count = read STDIN, my $buffer, 4096) { $length += $count }
print "content of $length bytes\n";
