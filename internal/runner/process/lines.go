package process

import (
	"bufio"
	"bytes"
	"errors"
)

// readLine returns the next line without its newline. Of a longer line than most
// it returns the beginning, marked as cut, and drops the rest; a last line
// without newline is marked as cut too. The line is valid until the next call.
func readLine(r *bufio.Reader, buf *[]byte, most int) (line []byte, cut bool, err error) {
	piece, err := r.ReadSlice('\n')
	if err == nil && len(piece) <= most+1 {
		return piece[:len(piece)-1], false, nil
	}
	line = (*buf)[:0]
	for {
		ended := bytes.HasSuffix(piece, []byte{'\n'})
		if ended {
			piece = piece[:len(piece)-1]
		}
		room := most - len(line)
		if len(piece) > room {
			piece, cut = piece[:room], true
		}
		line = append(line, piece...)
		switch {
		case ended:
			*buf = line
			return line, cut, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && len(line) > 0:
			*buf = line
			return line, true, nil // the error comes again
		case err != nil:
			return nil, false, err
		}
		piece, err = r.ReadSlice('\n')
	}
}
