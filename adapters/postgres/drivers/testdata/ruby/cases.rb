# What the cases of Ruby's drivers share: the tickets in ascending order, and how a case is told.
require 'timeout'

RESOURCE = ENV['RESOURCE']
TICKETS = ENV['TICKETS'].split
LARGE = '0123456789abcdef' * (256 * 1024 / 16)

module Holder
  @at = 0

  def self.ticket = TICKETS[@at]

  def self.before = TICKETS[@at - 1]

  def self.next
    @at += 1
    ticket
  end
end

CASES = []
OPENED = []

def test(name, &body) = CASES << [name, body]

def equal(got, want)
  raise "got #{got.inspect[0, 300]}, want #{want.inspect[0, 300]}" unless got == want
end

def run_all
  failed = false
  CASES.each do |name, body|
    Timeout.timeout(60, &body)
    puts "ok #{name}"
  rescue Exception => e # also what is no StandardError
    failed = true
    warn e.full_message
    puts "not ok #{name}: #{e.class} #{e.message.split.join(' ')}"
  ensure
    OPENED.each { |c| c.close unless c.finished? }
    OPENED.clear
  end
  exit(failed ? 1 : 0)
end
