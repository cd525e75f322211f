package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/engine"
)

// Figures are stored by the hour, a document each, which is written again every minute: so a restart does not blank the plots,
// and a crash costs a minute of them.

// figuresRecord is an hour as it is stored.
type figuresRecord struct {
	Samples [][]float64       `json:"samples"`        // by the minute; columns in their order
	Keys    map[string]uint64 `json:"keys,omitempty"` // requests by key
}

// maxStoredKeys bounds a document.
const maxStoredKeys = 10_000

// figuresDocument is where an hour is kept.
func (d *Dashboard) figuresDocument(hour int64) string {
	return fmt.Sprintf("%s%010d", d.figuresOf(), hour)
}

// figuresOf is what the documents of this node begin with.
func (d *Dashboard) figuresOf() string {
	if d.Node == "" {
		return FiguresPrefix
	}
	return FiguresPrefix + d.Node + "/"
}

// loadFigures reads the hours of the last day, and deletes older ones, also those of nodes that are gone.
func (d *Dashboard) loadFigures(ctx context.Context) error {
	docs, err := d.Documents.List(ctx, FiguresPrefix, "", 1000)
	if err != nil {
		return fmt.Errorf("list %s: %w", FiguresPrefix, err)
	}
	oldest := d.Now().Unix()/3600 - 24
	f := &d.figures
	for _, doc := range docs {
		hour, err := strconv.ParseInt(doc.Key[strings.LastIndexByte(doc.Key, '/')+1:], 10, 64)
		if err != nil || hour < oldest {
			if err := d.Documents.Delete(ctx, doc.Key, 0); err != nil {
				d.Logger.Debug("old figures were not deleted", "error", err)
			}
			continue
		}
		if doc.Key != d.figuresDocument(hour) {
			continue // another node's
		}
		var record figuresRecord
		d.stored[hour] = doc.Revision
		if err := json.Unmarshal(doc.Value, &record); err != nil { // it is written over, or deleted when it is old
			d.Logger.Warn("figures of an hour cannot be read", "document", doc.Key, "error", err)
			continue
		}
		for _, values := range record.Samples {
			var s sample
			copy(s[:], values)
			f.coarse.add(s)
		}
		if record.Keys != nil && hour > oldest {
			f.usage.hours[hour] = record.Keys
		}
	}
	return nil
}

// storeFigures stores the hours that now and the last sample belong to.
func (d *Dashboard) storeFigures(ctx context.Context) error {
	hour := d.Now().Unix() / 3600
	var faults []error
	for _, h := range []int64{hour - 1, hour} {
		if record := d.hourOf(h); record != nil {
			faults = append(faults, d.storeHour(ctx, h, record))
		}
	}
	for h := range d.stored {
		if h < hour-24 {
			if err := d.Documents.Delete(ctx, d.figuresDocument(h), 0); err != nil && !errors.Is(err, engine.ErrNotFound) {
				faults = append(faults, err)
				continue
			}
			delete(d.stored, h)
			delete(d.written, h)
		}
	}
	return errors.Join(faults...)
}

// hourOf is an hour as it would be stored; nil when that is nothing, or nothing new.
func (d *Dashboard) hourOf(hour int64) []byte {
	f := &d.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	record := figuresRecord{Keys: map[string]uint64{}}
	for i := range f.coarse.samples {
		if s := f.coarse.samples[i]; int64(s[at])/3600 == hour {
			for j := range s { // more digits would only take space
				s[j], _ = strconv.ParseFloat(strconv.FormatFloat(s[j], 'g', 12, 64), 64)
			}
			record.Samples = append(record.Samples, s[:])
		}
	}
	for id, n := range f.usage.hours[hour] {
		if len(record.Keys) < maxStoredKeys {
			record.Keys[id] = n
		}
	}
	if len(record.Samples) == 0 && len(record.Keys) == 0 {
		return nil
	}
	value, err := json.Marshal(record)
	if err != nil || string(value) == d.written[hour] {
		return nil
	}
	return value
}

func (d *Dashboard) storeHour(ctx context.Context, hour int64, value []byte) error {
	key := d.figuresDocument(hour)
	var doc engine.Document
	var err error
	if rev := d.stored[hour]; rev != 0 {
		doc, err = d.Documents.Update(ctx, key, value, rev)
	} else {
		doc, err = d.Documents.Create(ctx, key, value)
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	d.stored[hour], d.written[hour] = doc.Revision, string(value)
	return nil
}

// tick samples, sweeps, and stores once a minute.
func (d *Dashboard) tick(ctx context.Context) {
	d.sessions.sweep()
	c := d.read()
	d.figures.mu.Lock()
	d.figures.fine.take(&c)
	due := d.figures.coarse.take(&c)
	if due {
		d.figures.usage.take(c.taken, d.Access.Taken())
	}
	d.figures.mu.Unlock()
	if !due {
		return
	}
	d.keepFigures(ctx)
	d.keepRefusals(ctx)
}

// keepFigures stores the figures if the store takes writes: what is left of a full disk is not for plots.
func (d *Dashboard) keepFigures(ctx context.Context) {
	if !d.Writes() {
		return
	}
	err := d.storeFigures(ctx)
	if err != nil && !d.complained {
		d.Logger.Warn("figures of the dashboard were not stored", "error", err)
	}
	d.complained = err != nil
}

// read is the counters of now.
func (d *Dashboard) read() counts {
	return readCounts(d.Now(), d.API.Stats(), d.Hub.Stats(), d.Store())
}

// run samples until the dashboard is closed.
func (d *Dashboard) run() {
	t := time.NewTicker(fineEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.tick(context.Background())
		case <-d.closing:
			return
		}
	}
}
