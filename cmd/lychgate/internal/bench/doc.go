// Package bench measures the coordinator beside etcd, on one machine and in one run: three durable nodes each, as
// processes of their own, on the same disk, and the workers in processes of their own too (package load). What both can
// do is measured in turn, ours, theirs, ours, theirs, and the medians of the rounds are told, so that what else the
// machine does meets both alike.
//
// Every phase is judged: two holders of a lock at a time, a token that does not grow, a lease that ends before its time.
// A run in which such a thing was seen reports nothing but that.
package bench
