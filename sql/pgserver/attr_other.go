//go:build unix && !linux

package pgserver

import "syscall"

// attributes puts the server into a process group of its own, so that Ctrl-C reaches only us.
func attributes(a account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential(), Setpgid: true}
}
