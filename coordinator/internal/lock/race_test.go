//go:build race

package lock_test

const raceDetector = true // all is slower, and takes more memory
