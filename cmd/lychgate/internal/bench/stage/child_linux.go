package stage

import "syscall"

// attributes gives a child a group of its own, so that Ctrl-C reaches it only through this process, and has it die with
// this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
