package tracer

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Access is what processes may do with a mapped part of the machine.
type Access int

// The kinds of access.
const (
	ReadWrite Access = iota
	ReadOnly         // nothing is changed
	Fixed            // files are written to, but none is made, removed or renamed
)

// Mapping shows a part of the machine at a path of a View.
type Mapping struct {
	Inside, Outside string // absolute and clean
	Access          Access
}

// View is a file system made of a tree and of parts of the machine. Paths in it
// are inside paths; where they really are is outside. It is safe for concurrent use.
type View struct {
	tree  string
	short string // another name of the tree, for where long ones do not fit

	mu       sync.RWMutex
	mappings []Mapping // longest inside path first
}

// NewView shows tree, an absolute path without symbolic links. Short is a second,
// shorter path to it.
func NewView(tree, short string, mappings ...Mapping) *View {
	v := &View{tree: tree, short: short}
	for _, m := range mappings {
		v.Map(m)
	}
	return v
}

// Map adds a mapping, over others at the same path.
func (v *View) Map(m Mapping) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mappings = slices.Insert(slices.Clone(v.mappings), 0, m)
	slices.SortStableFunc(v.mappings, func(a, b Mapping) int { return len(b.Inside) - len(a.Inside) })
}

// Unmap removes the newest mapping at a path and returns it.
func (v *View) Unmap(inside string) (Mapping, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, m := range v.mappings {
		if m.Inside == inside {
			v.mappings = slices.Delete(slices.Clone(v.mappings), i, i+1)
			return m, true
		}
	}
	return Mapping{}, false
}

// below returns what remains of p under dir.
func below(p, dir string) (string, bool) {
	if dir == "/" {
		return p, true
	}
	rest, ok := strings.CutPrefix(p, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// locate finds a path inside that has no symbolic links on its way.
func (v *View) locate(inside string) (string, Access) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, m := range v.mappings {
		if rest, ok := below(inside, m.Inside); ok {
			return m.Outside + rest, m.Access
		}
	}
	if inside == "/" {
		return v.tree, ReadWrite
	}
	return v.tree + inside, ReadWrite
}

// Inside is the name that an outside path has in the view, if it is in sight.
func (v *View) Inside(outside string) (string, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if rest, ok := below(outside, v.tree); ok {
		return path.Join("/", rest), true
	}
	best, found := Mapping{}, false
	for _, m := range v.mappings {
		if _, ok := below(outside, m.Outside); ok && (!found || len(m.Outside) > len(best.Outside)) {
			best, found = m, true
		}
	}
	if !found {
		return "", false
	}
	rest, _ := below(outside, best.Outside)
	return best.Inside + rest, true
}

// maxLinks is the kernel's bound.
const maxLinks = 40

// Process is who asks for a path: /proc/self depends on it.
type Process struct{ Group, Thread int }

// Place is where a path leads.
type Place struct {
	Outside string
	Access  Access
}

// Resolve follows an absolute path of the view as the kernel would if the view
// were the root: link by link. The last component is followed if follow is set. What
// does not exist keeps its place, so that the kernel's answer about it is right.
func (v *View) Resolve(p string, follow bool, who Process) (Place, error) {
	if rest, ok := below(p, v.tree); ok { // an outside path that has come to light
		p = "/" + rest
	} else if rest, ok := below(p, v.short); ok && v.short != "" {
		p = "/" + rest
	}
	slash := strings.HasSuffix(p, "/") && strings.Trim(p, "/") != ""
	w := walk{view: v, who: who, at: "/", rest: strings.Split(p, "/"), follow: follow || slash}
	place, err := w.run()
	if slash && err == nil && !strings.HasSuffix(place.Outside, "/") {
		place.Outside += "/"
	}
	return place, err
}

type walk struct {
	view   *View
	who    Process
	at     string // where we are, free of links
	rest   []string
	follow bool
	links  int
}

func (w *walk) run() (Place, error) {
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			w.at = path.Dir(w.at)
			continue
		}
		last := w.isLast()
		if place, done := w.process(&name, last); done {
			return place, nil
		}
		switch name {
		case "": // a step to the root
			w.at = "/"
			continue
		case ".": // a step that has been made
			continue
		}
		next := path.Join(w.at, name)
		if last && !w.follow {
			return w.place(next), nil
		}
		outside, _ := w.view.locate(next)
		target, err := readlink(outside)
		switch {
		case err == nil:
			if w.links++; w.links > maxLinks {
				return Place{}, unix.ELOOP
			}
			if strings.HasPrefix(target, "/") {
				w.at = "/"
				if rest, ok := below(target, w.view.tree); ok {
					target = rest
				}
			}
			w.rest = append(strings.Split(target, "/"), w.rest...)
		case errors.Is(err, unix.EINVAL): // no link
			w.at = next
		default: // the kernel shall say it
			place := w.place(next)
			place.Outside = join(place.Outside, w.rest)
			return place, nil
		}
	}
	return w.place(w.at), nil
}

func (w *walk) isLast() bool {
	for _, name := range w.rest {
		if name != "" && name != "." {
			return false
		}
	}
	return true
}

func (w *walk) place(inside string) Place {
	outside, access := w.view.locate(inside)
	return Place{Outside: outside, Access: access}
}

// process minds what is special about /proc: who "self" is, and links that lead
// where no path does, which are left to the kernel.
func (w *walk) process(name *string, last bool) (Place, bool) {
	if w.at == "/proc" {
		if last && !w.follow {
			return Place{}, false
		}
		switch *name {
		case "self":
			*name = strconv.Itoa(w.who.Group)
		case "thread-self":
			*name = strconv.Itoa(w.who.Group) + "/task/" + strconv.Itoa(w.who.Thread)
		}
		return Place{}, false
	}
	rest, ok := strings.CutPrefix(w.at, "/proc/")
	if !ok || rest[0] < '0' || rest[0] > '9' {
		return Place{}, false
	}
	if *name == "root" && (!last || w.follow) {
		*name = ""
		return Place{}, false
	}
	link := path.Join(w.at, *name)
	if last && !w.follow {
		return w.place(link), true
	}
	target, err := readlink(link)
	if err != nil {
		return Place{}, false // an ordinary entry
	}
	inside, ok := w.view.Inside(target)
	switch {
	case ok && !last: // a descriptor or a current directory to start from
		w.at, *name = inside, "."
		return Place{}, false
	case ok:
		_, access := w.view.locate(inside)
		return Place{Outside: link, Access: access}, true
	default: // what has no name in sight, or none at all
		return Place{Outside: join(link, w.rest)}, true
	}
}

// join leaves "a/.." unchanged: whether there is an "a" matters.
func join(p string, rest []string) string { return strings.Join(append([]string{p}, rest...), "/") }

func readlink(p string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(p, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
