package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"weir/internal/disk"
)

// Files of the journal other than segments.
const (
	lockFile      = "lock"
	formatFile    = "format"
	formatTmpFile = "format.tmp"
)

// formatVersion is the version of the format that this code writes. A directory with a higher
// version is refused.
const formatVersion = 2

// identify is steps 1 to 3 of opening: decide whether the directory is a journal, take the lock,
// and read the format. An empty directory becomes a journal, and fresh is true.
func (j *Journal) identify() (fresh bool, err error) {
	names, err := j.fs.List()
	if err != nil {
		return false, fmt.Errorf("list the data directory: %w", err)
	}
	known := slices.Contains(names, formatFile)
	for _, name := range names {
		if !known && name != lockFile && name != formatTmpFile {
			return false, fmt.Errorf("%w: the directory contains %s but no file %s", ErrForeign, name, formatFile)
		}
	}
	if known {
		if err := j.readFormat(); err != nil {
			return false, err
		}
	}
	if j.lock, err = j.fs.Lock(lockFile); err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return false, fmt.Errorf("the data directory is %w", disk.ErrLocked)
		}
		return false, fmt.Errorf("lock the data directory: %w", err)
	}
	if known {
		return false, nil
	}
	return true, j.writeFormat()
}

// readFormat reads the format file, for example:
//
//	weir journal 2
//	segment 67108864
//	salt 5f1c0a9e4b7d2836
//	check 8d2f01aa
func (j *Journal) readFormat() error {
	f, err := j.fs.Open(formatFile)
	if err != nil {
		return fmt.Errorf("open %s: %w", formatFile, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("read %s: %w", formatFile, err)
	}
	b := make([]byte, min(size, 4096))
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return fmt.Errorf("read %s: %w", formatFile, err)
	}
	return j.parseFormat(string(b))
}

// parseFormat checks the version before anything else: in a newer format, the other lines may look
// different.
func (j *Journal) parseFormat(text string) error {
	first, rest, _ := strings.Cut(text, "\n")
	v, ok := strings.CutPrefix(first, "weir journal ")
	version, err := strconv.Atoi(v)
	if !ok || err != nil {
		return fmt.Errorf("%w: %s begins with %q", ErrForeign, formatFile, first)
	}
	body, check, _ := strings.Cut(rest, "check ")
	if version > formatVersion {
		return fmt.Errorf("%w: format %d, this version supports up to %d", ErrNewer, version, formatVersion)
	}
	var salt string
	_, err = fmt.Sscanf(body, "segment %d\nsalt %s\n", &j.size, &salt)
	raw, bad := hex.DecodeString(salt)
	if err != nil || bad != nil || len(raw) != len(j.salt) || j.size < minSegment || j.size > maxSegment || j.size%dataStart != 0 ||
		check != formatCheck(first+"\n"+body) {
		return &DamageError{File: formatFile, What: "journal format", Err: errChecksum}
	}
	copy(j.salt[:], raw)
	j.older = version < formatVersion
	j.commit.init(j) // the committer's reserve depends on the segment size
	return nil
}

func formatCheck(text string) string { return fmt.Sprintf("%08x\n", sum(0, []byte(text))) }

// formatText returns the content of the format file.
func (j *Journal) formatText() string {
	text := fmt.Sprintf("weir journal %d\nsegment %d\nsalt %x\n", formatVersion, j.size, j.salt)
	return text + "check " + formatCheck(text)
}

// writeFormat makes an empty directory a journal.
func (j *Journal) writeFormat() error {
	rand.Read(j.salt[:])
	err := j.replace(formatFile, formatTmpFile, []byte(j.formatText()))
	if err != nil {
		return fmt.Errorf("create %s: %w", formatFile, err)
	}
	return nil
}

// upgrade gives a journal of an older version the current one, because an older program would take
// new records for damaged ones. On a full disk the next opening does it.
func (j *Journal) upgrade() error {
	if !j.older {
		return nil
	}
	err := j.replace(formatFile, formatTmpFile, []byte(j.formatText()))
	if err != nil && !isShortage(err) {
		return fmt.Errorf("upgrade %s to version %d: %w", formatFile, formatVersion, err)
	}
	return nil
}

// replace writes a small file atomically: after a crash it has its full content or does not exist.
// When replace returns nil, the file is durable.
func (j *Journal) replace(name, tmp string, content []byte) error {
	if err := j.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := j.fs.Create(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.WriteAt(0, content); err != nil {
		return err
	}
	if err := f.SyncData(); err != nil {
		return err
	}
	if err := j.fs.Rename(tmp, name); err != nil {
		return err
	}
	return j.fs.SyncDir()
}
