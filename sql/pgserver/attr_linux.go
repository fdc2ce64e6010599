package pgserver

import "syscall"

// attributes puts the server into a process group of its own, so that Ctrl-C reaches only us, and has the
// kernel shut it down at once should we die.
func attributes(a account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential(), Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
