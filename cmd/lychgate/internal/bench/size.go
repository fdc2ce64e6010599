package bench

import "time"

// size is how much and how long each phase measures.
type size struct {
	full   bool // the goals hold for these sizes
	rounds int

	workers         []int
	warmUp, cycling time.Duration

	waiters int

	failovers int
	held      int           // leases that must live through a failover
	heldTTL   time.Duration // of each
	after     time.Duration // how long a failover is watched

	leases, peerLeases int // of memory

	expiring    int
	fillRate    float64 // acquires a second that the filling may count on at least
	othersRate  float64
	expiryLeast time.Duration

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
		s.full, s.workers, s.waiters = false, []int{1, 16}, 20
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
	waiters: 1000, failovers: 5, held: 200, heldTTL: 5 * time.Second, after: 7 * time.Second,
	leases: 1_000_000, peerLeases: 100_000,
	expiring: 500_000, fillRate: 5000, othersRate: 500, expiryLeast: 10 * time.Second,
	capacityA: capacity{clients: 20_000, leases: 1, ttl: 30 * time.Second, beat: 10 * time.Second, churn: 2000, warmUp: 5 * time.Second, time: 30 * time.Second},
	capacityB: capacity{clients: 100_000, leases: 5, ttl: 10 * time.Second, beat: 7500 * time.Millisecond, churn: 5000.0 / 3, warmUp: 10 * time.Second, time: 30 * time.Second},
}

var quickSize = size{
	rounds: 1, workers: []int{1, 64, 512}, warmUp: 500 * time.Millisecond, cycling: 1500 * time.Millisecond,
	waiters: 100, failovers: 1, held: 50, heldTTL: 5 * time.Second, after: 4 * time.Second,
	leases: 30_000, peerLeases: 5_000,
	expiring: 10_000, fillRate: 2500, othersRate: 200, expiryLeast: 6 * time.Second,
	capacityA: capacity{clients: 5_000, leases: 1, ttl: 30 * time.Second, beat: 10 * time.Second, churn: 500, warmUp: time.Second, time: 3 * time.Second},
	capacityB: capacity{clients: 4_000, leases: 5, ttl: 10 * time.Second, beat: 7500 * time.Millisecond, churn: 66, warmUp: time.Second, time: 3 * time.Second},
}
