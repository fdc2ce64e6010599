package bench

import "time"

// size is how much and how long each phase measures.
type size struct {
	full   bool // the goals hold for these sizes
	rounds int

	workers         []int
	warmUp, cycling time.Duration

	contenders, locks int
	waiters           int

	failovers int
	before    time.Duration // the kill
	held      int           // leases that must live through a failover
	heldTTL   time.Duration // of each
	after     time.Duration // how long a failover is watched

	leases, peerLeases int           // of memory
	warming            time.Duration // before it
	idle               time.Duration // before memory is looked at
	calm               int           // half seconds without change after which memory has settled

	expiring    int
	othersRate  float64
	expiryLeast time.Duration

	fillLimit time.Duration // of the capacity runs
	capacityA capacity
	capacityB capacity
}

// capacity is one of the capacity targets.
type capacity struct {
	clients, leases int
	ttl, beat       time.Duration
	churn           float64 // acquires a second, and as many releases
	warmUp, time    time.Duration
}

// operations is how many lease operations it asks for in a second.
func (c capacity) operations() float64 {
	return float64(c.clients*c.leases)/c.beat.Seconds() + 2*c.churn
}

func sizeOf(c Config) size {
	s := fullSize
	if c.Quick {
		s = quickSize
	}
	if len(c.Addrs) > 0 {
		s.full, s.workers, s.contenders, s.locks, s.waiters = false, []int{1, 16}, 8, 2, 20
	}
	if len(c.Workers) > 0 {
		s.workers = c.Workers
	}
	if c.Rounds > 0 {
		s.rounds, s.failovers = c.Rounds, c.Rounds
	}
	return s
}

var fullSize = size{
	full: true, rounds: 3, workers: []int{1, 64, 512}, warmUp: 2 * time.Second, cycling: 5 * time.Second,
	contenders: 64, locks: 8, waiters: 1000,
	failovers: 5, before: time.Second, held: 200, heldTTL: 5 * time.Second, after: 7 * time.Second,
	leases: 1_000_000, peerLeases: 100_000, warming: 10 * time.Second, idle: 125 * time.Second, calm: 6,
	expiring: 500_000, othersRate: 500, expiryLeast: 10 * time.Second,
	fillLimit: 3 * time.Minute,
	capacityA: capacity{clients: 20_000, leases: 1, ttl: 30 * time.Second, beat: 10 * time.Second, churn: 2000, warmUp: 5 * time.Second, time: 75 * time.Second},
	capacityB: capacity{clients: 100_000, leases: 5, ttl: 10 * time.Second, beat: 7500 * time.Millisecond, churn: 5000.0 / 3, warmUp: 10 * time.Second, time: 30 * time.Second},
}

var quickSize = size{
	rounds: 1, workers: []int{1, 64, 512}, warmUp: 500 * time.Millisecond, cycling: 1500 * time.Millisecond,
	contenders: 64, locks: 8, waiters: 100,
	failovers: 1, before: 500 * time.Millisecond, held: 50, heldTTL: 5 * time.Second, after: 3 * time.Second,
	leases: 30_000, peerLeases: 3_000, warming: time.Second, calm: 2,
	expiring: 10_000, othersRate: 200, expiryLeast: 6 * time.Second,
	fillLimit: 20 * time.Second,
	capacityA: capacity{clients: 5_000, leases: 1, ttl: 30 * time.Second, beat: 10 * time.Second, churn: 500, warmUp: 500 * time.Millisecond, time: 2 * time.Second},
	capacityB: capacity{clients: 2_000, leases: 5, ttl: 10 * time.Second, beat: 7500 * time.Millisecond, churn: 100.0 / 3, warmUp: 500 * time.Millisecond, time: 2 * time.Second},
}
