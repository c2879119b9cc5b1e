package boxinit

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// expendable is the oom_score_adj of sandboxes without control groups: half of the machine's
	// memory.
	expendable = 500
	// memoryOfInode is the size of a file system in memory per inode; maxSharedInodes and
	// maxImageInodes bound its inodes. Each takes about 1 KiB of kernel memory.
	memoryOfInode   = 16 << 10
	maxSharedInodes = 65_536
	maxImageInodes  = 1_000_000
)

// sharedMemoryOptions returns the mount options of /dev/shm: half of the sandbox's memory, like the
// kernel's default of half of the machine's.
func sharedMemoryOptions(memory int64) string { return sizeOptions(memory/2, maxSharedInodes) }

// imageOptions returns the mount options of an image, which may use all of the sandbox's memory.
func imageOptions(memory int64) string { return sizeOptions(memory, maxImageInodes) }

func sizeOptions(size, inodes int64) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d", size, min(size/memoryOfInode, inodes))
}

// limitSystemV limits the System V shared memory of our IPC namespace to half of the sandbox's
// memory. Before Linux 5.19 only the machine's root can set that.
func limitSystemV(memory int64) error {
	most := memory / 2
	for file, value := range map[string]int64{"/proc/sys/kernel/shmall": most / int64(os.Getpagesize()), "/proc/sys/kernel/shmmax": most} {
		err := os.WriteFile(file, []byte(strconv.FormatInt(value, 10)), 0)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("limit shared memory: %w", err)
		}
	}
	return nil
}
