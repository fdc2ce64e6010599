//go:build !linux

package stage

import "syscall"

// attributes gives a child a group of its own. There is no way here to have it die with this process.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
