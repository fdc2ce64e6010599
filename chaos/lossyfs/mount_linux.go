package lossyfs

import (
	"fmt"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Mounted is a disk that processes see as a folder.
type Mounted struct {
	server *fuse.Server
	folder string
}

// Mount shows a disk as a folder, which has to exist, until Unmount. It needs root. The program that mounts should not map files of it into
// its own memory, nor end with one open: it would wait for itself.
func Mount(d *Disk, folder string) (*Mounted, error) {
	server, err := fuse.NewServer(&served{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: d}, folder, &fuse.MountOptions{
		Name: "lossyfs", FsName: "lossyfs", DisableXAttrs: true, DirectMountStrict: true, DisableReadDirPlus: true,
	})
	if err != nil {
		return nil, fmt.Errorf("mount on %s: %w", folder, err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return nil, fmt.Errorf("mount on %s: %w", folder, err)
	}
	return &Mounted{server, folder}, nil
}

// Unmount takes the folder away. It is an error if a process has a file of it open, and then the mount stays.
func (m *Mounted) Unmount() error {
	if err := syscall.Unmount(m.folder, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", m.folder, err)
	}
	m.server.Wait()
	return nil
}

// served answers the kernel. Nodes are inodes, and nothing is cached but the pages of files, through which every write goes at once.
type served struct {
	fuse.RawFileSystem
	disk *Disk
}

func (s *served) String() string { return "lossyfs" }

func (st stat) fill(i inode, out *fuse.Attr) {
	*out = fuse.Attr{Ino: uint64(i), Nlink: 1, Blksize: block, Mode: syscall.S_IFREG | 0o600}
	if st.folder {
		out.Mode, out.Nlink = syscall.S_IFDIR|0o700, 2
		return
	}
	out.Size, out.Blocks = uint64(st.size), uint64(st.blocks)*block/sector
}

func (st stat) enter(i inode, out *fuse.EntryOut) {
	out.NodeId, out.Generation = uint64(i), 1
	st.fill(i, &out.Attr)
}

func (s *served) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	i, st, errno := s.disk.lookUp(inode(in.NodeId), name)
	if errno == 0 {
		st.enter(i, out)
	}
	return fuse.Status(errno)
}

func (s *served) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	st, errno := s.disk.stat(inode(in.NodeId))
	st.fill(inode(in.NodeId), &out.Attr)
	return fuse.Status(errno)
}

func (s *served) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	i := inode(in.NodeId)
	if size, ok := in.GetSize(); ok {
		if errno := s.disk.do(op{kind: opResize, inode: i, off: int64(size)}); errno != 0 {
			return fuse.Status(errno)
		}
	}
	st, errno := s.disk.stat(i) // owners, modes and times are nobody's concern here
	st.fill(i, &out.Attr)
	return fuse.Status(errno)
}

func (s *served) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	const keepSize = 1
	st, errno := s.disk.stat(inode(in.NodeId))
	end := int64(in.Offset + in.Length)
	switch {
	case errno != 0:
		return fuse.Status(errno)
	case in.Mode&^keepSize != 0:
		return fuse.Status(syscall.EOPNOTSUPP)
	case in.Mode == keepSize || end <= st.size:
		return fuse.OK
	}
	return fuse.Status(s.disk.do(op{kind: opResize, inode: inode(in.NodeId), off: end}))
}

func (s *served) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	i, errno := s.disk.make(inode(in.NodeId), name, true)
	stat{folder: true}.enter(i, out)
	return fuse.Status(errno)
}

func (s *served) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	i, errno := s.disk.make(inode(in.NodeId), name, false)
	stat{}.enter(i, &out.EntryOut)
	return fuse.Status(errno)
}

func (s *served) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fuse.Status(s.disk.do(op{kind: opRemove, inode: inode(in.NodeId), name: name}))
}

func (s *served) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fuse.Status(s.disk.do(op{kind: opRemove, inode: inode(in.NodeId), name: name, folder: true}))
}

func (s *served) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if in.Flags != 0 {
		return fuse.Status(syscall.EINVAL)
	}
	return fuse.Status(s.disk.do(op{kind: opRename, inode: inode(in.NodeId), name: from, target: inode(in.Newdir), rename: to}))
}

func (s *served) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	_, errno := s.disk.stat(inode(in.NodeId))
	return fuse.Status(errno)
}

func (s *served) Read(_ <-chan struct{}, in *fuse.ReadIn, p []byte) (fuse.ReadResult, fuse.Status) {
	n, errno := s.disk.read(inode(in.NodeId), p, int64(in.Offset))
	return fuse.ReadResultData(p[:n]), fuse.Status(errno)
}

func (s *served) Write(_ <-chan struct{}, in *fuse.WriteIn, p []byte) (uint32, fuse.Status) {
	errno := s.disk.do(op{kind: opWrite, inode: inode(in.NodeId), off: int64(in.Offset), data: append([]byte(nil), p...)})
	if errno != 0 {
		return 0, fuse.Status(errno)
	}
	return uint32(len(p)), fuse.OK
}

func (s *served) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (s *served) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fuse.Status(s.disk.do(op{kind: opSync, inode: inode(in.NodeId)}))
}

func (s *served) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fuse.Status(s.disk.do(op{kind: opSyncFolder, inode: inode(in.NodeId)}))
}

func (s *served) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

func (s *served) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	all, errno := s.disk.list(inode(in.NodeId))
	if errno != 0 {
		return fuse.Status(errno)
	}
	for n := int(in.Offset); n < len(all); n++ {
		mode := uint32(syscall.S_IFREG)
		if all[n].stat.folder {
			mode = syscall.S_IFDIR
		}
		if !out.AddDirEntry(fuse.DirEntry{Name: all[n].name, Ino: uint64(all[n].inode), Mode: mode, Off: uint64(n) + 1}) {
			break
		}
	}
	return fuse.OK
}

func (s *served) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const plenty = 1 << 28
	*out = fuse.StatfsOut{Bsize: block, Frsize: block, Blocks: plenty, Bfree: plenty, Bavail: plenty, Files: plenty, Ffree: plenty, NameLen: 255}
	return fuse.OK
}
