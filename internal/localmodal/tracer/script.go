package tracer

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxScripts bounds the interpreters that are scripts themselves, like in the kernel.
const maxScripts = 4

// Script returns the program that the kernel would execute: the one at outside or, if that is a
// script, its interpreter, with the words that replace the first argument. inside is the name by
// which the program was called.
func (v *View) Script(outside, inside string, process Process) (string, []string, error) {
	var words []string
	for range maxScripts + 1 {
		line, ok := hashbang(outside)
		if !ok {
			return outside, words, nil
		}
		interpreter, option, _ := strings.Cut(line, " ")
		if words == nil {
			words = []string{inside}
		}
		if option = strings.TrimSpace(option); option != "" {
			words = append([]string{option}, words...)
		}
		words = append([]string{interpreter}, words...)
		if !path.IsAbs(interpreter) {
			return outside, nil, nil // rare enough to be left to the kernel
		}
		place, err := v.Resolve(interpreter, true, process)
		if err != nil {
			return "", nil, err
		}
		outside = place.Outside
	}
	return "", nil, unix.ELOOP
}

// hashbang returns the first line of an executable script.
func hashbang(file string) (string, bool) {
	if unix.Access(file, unix.X_OK) != nil {
		return "", false
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}
	head := make([]byte, 256)
	n, _ := f.Read(head) // an unreadable file is not a script
	_ = f.Close()        // read only
	text, ok := strings.CutPrefix(string(head[:n]), "#!")
	if !ok {
		return "", false
	}
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), true
}
