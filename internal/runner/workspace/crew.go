package workspace

import "sync"

// maxWaiting bounds the directories that wait for a member of a crew: each has an open file.
const maxWaiting = 32

// crew reads directories in several goroutines, its members. A member that has read one takes the next
// that waits, so that none is idle while directories are left. The zero crew is ready for one gather.
type crew struct {
	mu      sync.Mutex
	changed sync.Cond
	waiting []func()
	reading int // members that read, and may add directories
}

// gather makes the caller and a number of others read first, and everything that is added meanwhile. It
// returns when all has been read.
func (c *crew) gather(others int, first func()) {
	c.changed.L = &c.mu
	c.reading = 1 + others
	var group sync.WaitGroup
	for range others {
		group.Go(c.work)
	}
	first()
	c.work()
	group.Wait()
}

// add makes a member call read, unless enough are waiting: the caller reads the directory itself then.
func (c *crew) add(read func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) >= maxWaiting {
		return false
	}
	c.waiting = append(c.waiting, read)
	c.changed.Signal()
	return true
}

// work reads directories until no member reads one and none waits.
func (c *crew) work() {
	for read := c.next(); read != nil; read = c.next() {
		read()
	}
}

// next returns what a member that reads nothing must call next; nil if there will be nothing more.
func (c *crew) next() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		if c.reading--; c.reading == 0 {
			c.changed.Broadcast()
			return nil
		}
		for len(c.waiting) == 0 && c.reading > 0 {
			c.changed.Wait()
		}
		if len(c.waiting) == 0 {
			return nil
		}
		c.reading++
	}
	last := len(c.waiting) - 1
	read := c.waiting[last]
	c.waiting = c.waiting[:last]
	return read
}
