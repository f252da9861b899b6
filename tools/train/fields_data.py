# Synthetic notes and the JSON that describes them: the data of models/fields.
#
# A note is a short English text of one of four kinds (order, invoice, meeting, delivery). Its answer is one
# compact JSON object with the kind's fields in a fixed order, or, when the system prompt names fields, with exactly
# those in the order named. A field that the text does not give is null. Amounts are JSON numbers ("42.50" becomes
# 42.5), dates are YYYY-MM-DD, times HH:MM, quantities written as words become numbers, titles are dropped.
#
# Everything comes from the templates and word lists below; all people, firms and codes are made up. Training rows draw
# from the lists without HELD_OUT, mixed with endless made-up words, so that only copying can work; the answer of a
# held-out row has at least one HELD_OUT word, which no training row contains (its templates are the training ones).
#
# Used by train_fields.py. By hand: `python fields_data.py 5` prints five training rows.

import json
import random
import re
import sys

FIRST = """Ada Adam Agnes Alan Alba Alice Amir Andrea Anita Anton Asta Aurel Beata Ben Bianca Bruno Carla Carmen Clara
Cleo Daniel Daria David Diana Edgar Edith Elena Elias Elsa Emil Emma Erik Esther Eva Fabian Felix Fiona Flora Frank
Frida Georg Gina Greta Gustav Hanna Hector Heidi Helena Henry Hugo Ida Ines Ingrid Irene Isa Ivan Jana Jasper Joan
Jonas Judith Julia Kamal Karin Kaspar Klara Kurt Lara Laura Lena Leo Lidia Lina Louis Lucia Lukas Maja Marek Maria
Marta Martin Maya Milan Mina Mira Moritz Nadia Nils Nina Noah Nora Olga Oscar Otto Paula Pavel Petra Priya Ravi Rita
Robin Rosa Ruth Samir Sara Selma Silvia Simon Sofia Stella Sven Tamar Tara Teresa Theo Thomas Tilda Tom Ulla Uma
Vera Victor Viola Walter Wanda Yara Yusuf Zoe Zofia""".split()

MEN = set("""Adam Alan Amir Anton Aurel Ben Bertil Bruno Daniel David Edgar Elias Emil Erik Fabian Felix Fergus Frank
Georg Gustav Hamid Hector Henry Hugo Ivan Jasper Joaquin Jonas Kamal Kaspar Kurt Leo Leopold Louis Lukas Magnus Marek
Martin Milan Moritz Nils Noah Oscar Otto Pavel Ravi Robin Roland Samir Simon Sven Tamar Theo Thomas Tobias Tom Victor
Walter Yusuf""".split())

SURNAMES = """Abbot Acker Adler Aldana Amsler Arnold Baker Barros Bauer Berger Bianchi Blanc Bloom Borg
Brook Bucher Burke Carver Castro Cerny Clarke Cole Costa Cramer Dalton Dietz Dubois Duran Eberle Egger Ekman
Engel Ferrer Fischer Fontana Frei Fuchs Gallo Garcia Geiger Gomes Graf Gruber Haas Hahn Hansen Hart Hauser Hill
Hofer Holm Horvat Huber Iversen Jansen Jung Keller Kern Klein Kovacs Kramer Lang Larsen Lehmann Lind Lopez
Lorenz Maier Marino Marsh Meier Mendes Moser Nagel Nilsson Novak Nowak Olsen Pereira Pohl Popov Quinn Ramos Reed
Richter Ritter Romano Rossi Roth Sanders Santos Sauer Schmid Silva Singh Sommer Stark Stein Suter Tanner
Torres Ullmann Urban Vogel Walker Weber Weiss Wolf Young Zeller Ziegler Müller Böhm Gómez Lévy Jørgensen
Håkansson Nuñez Šimek""".split()

CITIES = """Aarau Aarhus Antwerp Athens Basel Bergen Berlin Bern Bologna Bonn Bordeaux Bremen Brest Bristol Brno
Bruges Cadiz Cardiff Cologne Cork Delft Dijon Dresden Dublin Dundee Erfurt Essen Exeter Florence Fribourg Galway
Gdansk Geneva Genoa Graz Haarlem Hamburg Hanover Helsinki Innsbruck Izmir Jena Kassel Kiel Krakow Lausanne
Leeds Leipzig Lille Limerick Linz Lisbon Liverpool Ljubljana Lucerne Lugano Lund Lyon Madrid Mainz Malmo Mannheim
Marseille Milan Modena Munich Nantes Naples Nice Olten Oslo Oxford Padua Palermo Paris Parma Pisa Porto Potsdam
Poznan Prague Reims Riga Rome Rostock Rouen Salzburg Seville Siena Sofia Split Stuttgart Tallinn Toulouse Trieste
Turin Turku Uppsala Utrecht Valencia Venice Verona Vienna Vilnius Warsaw Winterthur Zagreb Zug Zürich Malmö Łódź
Besançon""".split()

TWO_WORD_CITIES = ["San Remo", "Le Havre", "New Haven", "Bad Ragaz", "La Rochelle", "St Gallen", "Den Haag",
                   "Port Ellen"]

NOUNS = """lamps chairs tables mugs plates bowls pens notebooks folders desks shelves candles mirrors clocks vases
cushions blankets towels curtains carpets baskets boxes crates bottles glasses forks knives spoons kettles pans
lids jars trays hooks screws bolts hinges brackets cables plugs adapters batteries chargers keyboards monitors
printers cartridges routers speakers headphones cameras tripods lenses drones tents ropes helmets gloves jackets
boots scarves hats shirts aprons bags suitcases wallets belts umbrellas bicycles tyres pumps saddles lights bells
racks ladders hammers drills saws rulers brushes rollers buckets hoses sprinklers pots seeds shovels rakes benches
parasols stools frames posters maps globes puzzles kites balls rackets nets skates sledges violins flutes drums
stands""".split()

ADJECTIVES = """desk floor garden kitchen office travel winter summer red blue green black white yellow grey wooden
steel glass paper plastic cotton leather small large round square folding heavy light spare used new double oak
copper ceramic""".split()

TOPICS_A = """budget safety quarterly design product sales hiring project marketing security release data museum
harvest summer logistics energy website training vendor brand software library festival""".split()
TOPICS_B = "review planning workshop update briefing audit kickoff meeting session interview rehearsal retreat".split()

ROOMS = """Aspen Birch Cedar Maple Willow Linden Juniper Hazel Rowan Alder Falcon Heron Osprey Kestrel Sirius Vega
Orion Lyra Saturn Neptune Atlas Titan Opal Garnet Topaz Onyx""".split()

FIRM_ENDS = ["Ltd", "GmbH", "AG", "Inc", "Foods", "Tools", "Media", "Partners", "Logistics", "Studio"]

# Never drawn for training rows; every held-out answer has at least one.
HELD_OUT = {
    "surnames": "Albrecht Bergström Caruso Delgado Eriksson Fournier Grossmann Hidalgo Ibsen Jakubowski Kowalczyk "
                "Lindqvist Marchetti Nakamura Oberholzer Petrov Quintero Rasmussen Schneider Takahashi Underwood "
                "Vasquez Whitfield Yilmaz Zimmermann Brunner Castellano Hartmann Pedersen Thornton".split(),
    "cities": "Amsterdam Barcelona Coimbra Dortmund Edinburgh Freiburg Gothenburg Heidelberg Inverness Jerez Kilkenny "
              "Lüneburg Maastricht Norwich Odense Plymouth Regensburg Stavanger Tampere Ulm Vigo Wroclaw York Zadar "
              "Bilbao Glasgow Locarno Montreux".split(),
    "firsts": "Astrid Bertil Camille Dorothea Estelle Fergus Gwen Hamid Ilse Joaquin Katya Leopold Magnus Nadine "
              "Odile Philippa Roland Sabine Tobias Ursula".split(),
    "nouns": "pillows teapots lanterns wrenches microphones backpacks trumpets barrels magnets compasses stickers "
             "thermometers sandals pulleys".split(),
    "rooms": ["Magnolia", "Pelican", "Jupiter", "Sapphire", "Hickory"],
}

MONTHS = """January February March April May June July August September October November December""".split()
NUMBER_WORDS = """one two three four five six seven eight nine ten eleven twelve""".split()
CURRENCIES = ["EUR", "USD", "CHF", "GBP", "SEK", "PLN"]
SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£"}

FIELDS = {
    "order": ["name", "item", "quantity", "price", "currency", "city", "date"],
    "invoice": ["number", "name", "amount", "currency", "due"],
    "meeting": ["topic", "name", "room", "date", "time"],
    "delivery": ["code", "item", "quantity", "city", "date"],
}
OPTIONAL = {"order": ["city", "date"], "invoice": ["due"], "meeting": ["room", "time"], "delivery": ["city", "date"]}
ALL_FIELDS = sorted({f for fields in FIELDS.values() for f in fields})

# A bracketed part is left out when its field is absent from the note.
TEMPLATES = {
    "order": [
        "{name} ordered {quantity} {item} for {price}[, to be delivered to {city}][ on {date}].",
        "{name} has bought {quantity} {item} at {price}[. Delivery to {city}][, date {date}].",
        "{name} from accounts wants {quantity} {item}[ by {date}][ in {city}] and pays {price}.",
        "Order from {name}: {quantity} {item}, {price}[, {city}][, {date}].",
        "We sold {quantity} {item} to {name} for {price}[. They go to {city}][ on {date}].",
        "{quantity} {item} were ordered by {name}[ for delivery on {date}][ to {city}], {price} in total.",
        "For {price}, {name} takes {quantity} {item}[, shipped to {city}][ on {date}].",
        "[On {date} ]we ship {quantity} {item}[ to {city}]. The buyer is {name} and the price is {price}.",
        "Please book an order of {quantity} {item} for {name}. The price is {price}[, the place {city}][ and the day "
        "{date}].",
        "[To {city}: ]{quantity} {item}, sold to {name}[, due on {date}], at a price of {price}.",
        "Dear team, {name} would like {quantity} {item}. We agreed on {price}[ and on {date}][ in {city}].",
        "[{date}: ]{name} buys {quantity} {item}[, to be sent to {city}]. Total {price}.",
    ],
    "invoice": [
        "Invoice {number} to {name} over {price}[, payable by {due}].",
        "{name} owes us {price} under invoice {number}[, due on {due}].",
        "Please pay {price} to {name}[ by {due}]. The invoice number is {number}.",
        "[By {due} ]{name} has to pay invoice {number}, {price} in all.",
        "We have billed {name} with {price}, invoice {number}[; payment is due {due}].",
        "The invoice of {name}, number {number}, amounts to {price}[ and falls due on {due}].",
        "Amount {price}, invoice {number}, customer {name}[, due {due}].",
        "A reminder: {number} is still open. {name} should send {price}[ before {due}].",
        "[Due {due}: ]invoice {number} for {name}. The sum is {price}.",
    ],
    "meeting": [
        "{name} invites you to the {topic} on {date}[ at {time}][ in room {room}].",
        "The {topic} is on {date}[ at {time}][, room {room}]. {name} is the host.",
        "[In room {room}, ]{name} will lead the {topic} on {date}[ at {time}].",
        "Meeting note: {topic}, {date}[, {time}][, room {room}], called by {name}.",
        "On {date}[ at {time}] we hold the {topic}[ in room {room}]. Please confirm to {name}.",
        "[Room {room} is booked. ]The {topic} led by {name} takes place on {date}[ and starts at {time}].",
        "Please join {name} for the {topic}[ in room {room}] on {date}[, {time}].",
        "[At {time} ]on {date}, {name} opens the {topic}[. Come to room {room}].",
        "{name} has moved the {topic} to {date}[, {time}][; the new room is {room}].",
    ],
    "delivery": [
        "Parcel {code} with {quantity} {item} arrives[ in {city}][ on {date}].",
        "Delivery note {code}: {quantity} {item}[ for {city}][, {date}].",
        "[On {date} ]the driver brought {quantity} {item}[ to {city}], parcel {code}.",
        "{quantity} {item} left the depot[ for {city}][ on {date}]. The code is {code}.",
        "Our van carries {quantity} {item}[ to {city}]. Tracking code {code}[, expected {date}].",
        "[To {city}: ]{quantity} {item}, code {code}[, delivered on {date}].",
        "Code {code} was scanned[ in {city}][ on {date}]; it holds {quantity} {item}.",
        "We expect {quantity} {item}[ on {date}][ at the {city} warehouse] under code {code}.",
    ],
}
LABELS = {  # for notes written as a form
    "order": {"name": "Customer", "item": "Item", "quantity": "Quantity", "price": "Price", "city": "City",
              "date": "Date"},
    "invoice": {"number": "Invoice", "name": "Customer", "price": "Amount", "due": "Due"},
    "meeting": {"topic": "Topic", "name": "Host", "room": "Room", "date": "Date", "time": "Time"},
    "delivery": {"code": "Code", "item": "Item", "quantity": "Quantity", "city": "City", "date": "Date"},
}

DISTRACTORS = [
    "{oname} took the call.", "{oname} from the {ocity} office has checked this.", "Thanks to {oname} for the help.",
    "This note was written on {odate}.", "Shipping of {oprice} is extra.", "Last year it was {oprice}.",
    "The office in {ocity} is closed.", "For questions call {phone}.", "Our own reference is {ocode}.",
    "The {oitem} are sold out.", "{oname} asked for {oquantity} {oitem} last week, that is done.",
    "Nothing else to report.", "Please keep a copy.", "The weather in {ocity} was fine.", "Lunch is at {otime}.",
    "Copy to {oname}.", "Page 2 of {oquantity} is missing.", "The old date, {odate}, no longer holds.",
]

SYSTEM_GENERAL = ["You turn short notes into JSON.", "Read the note and answer with JSON.",
                  "Extract the fields of the note."]
SYSTEM_FIELDS = ["Return only these fields: {fields}.", "Fields: {fields}.", "Answer with JSON, keys {fields}.",
                 "From the note give {fields} as JSON."]

ONSETS = "b bl br c ch d dr f fl g gl gr h j k kl kr l m n p pl pr qu r s sch sh sk sl st t th tr v w y z".split()
VOWELS = "a e i o u ai au ea ei ie oo ou a e i o u".split()
CODAS = "b ck d f g k l ll ln m mb n nd ng nk nt p r rd rg rk rn rt s sk ss st t tt x z".split() + [""] * 12
SPLICED = [w.lower() for w in FIRST + SURNAMES + CITIES + NOUNS + ROOMS]
NEVER_TRAINED = {form for words in HELD_OUT.values() for w in words for form in (w.lower(), w.lower().rstrip("s"))}
PSEUDO_ACCENTS = {"a": "äáå", "e": "éè", "o": "öøó", "u": "üú"}


def pseudo_word(rng, low=1, high=3):
    """A made-up word: `low` to `high` syllables, or two list words cut and joined, or plain random letters."""
    roll = rng.random()
    if roll < 0.55:
        word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
                       for _ in range(rng.randint(low, high)))
    elif roll < 0.88:
        one, two = rng.choice(SPLICED), rng.choice(SPLICED)
        word = one[:rng.randint(1, len(one) - 1)] + two[rng.randint(1, len(two) - 2):]
    else:
        word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2 + low, 4 + 2 * high)))
    if rng.random() < 0.06:
        at = [i for i, c in enumerate(word) if c in PSEUDO_ACCENTS]
        if at:
            i = rng.choice(at)
            word = word[:i] + rng.choice(PSEUDO_ACCENTS[word[i]]) + word[i + 1:]
    return word if word not in NEVER_TRAINED else pseudo_word(rng, low, high)


class Words:
    """Draws the fillers of a note. `held_out` draws HELD_OUT words too."""

    def __init__(self, rng, held_out=False):
        self.rng, self.held_out = rng, held_out

    def pick(self, known, unseen, p_pseudo, pseudo_syllables=(1, 3)):
        rng = self.rng
        if self.held_out:
            if rng.random() < 0.6:
                return rng.choice(HELD_OUT[unseen])
            return rng.choice(known)
        if rng.random() < p_pseudo:
            return pseudo_word(rng, *pseudo_syllables).capitalize()
        return rng.choice(known)

    def person(self):
        """(text, answer): the text may carry a title."""
        rng = self.rng
        first, last = self.pick(FIRST, "firsts", 0.3, (1, 2)), self.pick(SURNAMES, "surnames", 0.6)
        if rng.random() < 0.06:
            last += "-" + rng.choice(SURNAMES)
        roll = rng.random()
        title = rng.choice(["Mr ", "Dr "] if first in MEN else ["Ms ", "Dr "])
        if roll < 0.1:
            return title + last, last
        full = first + " " + last
        return (title if roll < 0.35 else "") + full, full

    def customer(self):
        if self.rng.random() < 0.3:
            firm = self.pick(SURNAMES, "surnames", 0.7) + " " + self.rng.choice(FIRM_ENDS)
            return firm, firm
        return self.person()

    def city(self):
        if self.rng.random() < 0.06 and not self.held_out:
            return self.rng.choice(TWO_WORD_CITIES)
        return self.pick(CITIES, "cities", 0.45)

    def item(self):
        noun = self.pick(NOUNS, "nouns", 0.2)
        noun = noun.lower()
        if noun[-1] != "s":
            noun += "s"
        return (self.rng.choice(ADJECTIVES) + " " if self.rng.random() < 0.45 else "") + noun

    def quantity(self):
        n = self.rng.choice([self.rng.randint(2, 12), self.rng.randint(2, 99), self.rng.randint(2, 400)])
        if n <= 12 and self.rng.random() < 0.4:
            return NUMBER_WORDS[n - 1], n
        return str(n), n

    def money(self):
        """(text, value, currency): 0, 1 or 2 significant decimals, the currency before, behind or as a sign."""
        rng = self.rng
        whole = rng.choice([rng.randint(2, 99), rng.randint(10, 999), rng.randint(100, 4999)])
        cents = rng.choice([None, 0, 50, rng.randint(1, 9) * 10, rng.randint(1, 99), rng.randint(1, 99)])
        currency = rng.choice(CURRENCIES)
        digits = str(whole) if cents is None else "%d.%02d" % (whole, cents)
        value = whole if not cents else float(digits)
        if currency in SYMBOLS and rng.random() < 0.35:
            return SYMBOLS[currency] + digits, value, currency
        return (currency + " " + digits if rng.random() < 0.4 else digits + " " + currency), value, currency

    def date(self):
        rng = self.rng
        y, m, d = rng.randint(2024, 2029), rng.randint(1, 12), rng.randint(1, 28)
        iso = "%04d-%02d-%02d" % (y, m, d)
        text = rng.choice([iso, iso, "%d %s %d" % (d, MONTHS[m - 1], y), "%s %d, %d" % (MONTHS[m - 1], d, y)])
        return text, iso

    def time(self):
        h, m = self.rng.randint(7, 19), self.rng.choice([0, 0, 15, 30, 45, self.rng.randint(0, 59)])
        if self.rng.random() < 0.35:
            return "%d:%02d %s" % ((h - 1) % 12 + 1, m, "am" if h < 12 else "pm"), "%02d:%02d" % (h, m)
        return "%d:%02d" % (h, m), "%02d:%02d" % (h, m)

    def code(self):
        rng = self.rng
        letters = "".join(rng.choice("ABCDEFGHKLMNPRSTVWXZ") for _ in range(rng.randint(1, 3)))
        return letters + rng.choice(["-", "-", ""]) + str(rng.randint(100, 99999))

    def topic(self):
        first = pseudo_word(self.rng, 2, 3) if not self.held_out and self.rng.random() < 0.15 else \
            self.rng.choice(TOPICS_A)
        return first + " " + self.rng.choice(TOPICS_B)

    def room(self):
        if self.rng.random() < 0.4:
            return self.rng.choice(["", "A", "B", "C", "D"]) + str(self.rng.randint(1, 420))
        return self.pick(ROOMS, "rooms", 0.4, (1, 2))


def _fillers(words, kind):
    """({placeholder: text}, {field: answer}) for one note of a kind."""
    text, answer = {}, {}
    if kind in ("order", "delivery"):
        text["item"] = answer["item"] = words.item()
        text["quantity"], answer["quantity"] = words.quantity()
        text["city"] = answer["city"] = words.city()
    if kind in ("order", "invoice"):
        text["name"], answer["name"] = words.customer()
        text["price"], value, answer["currency"] = words.money()
        answer["price" if kind == "order" else "amount"] = value
    if kind == "invoice":
        number = words.rng.choice(["INV-%d", "R%d", "#%d", "2026-%d", "INV%d"]) % words.rng.randint(100, 99999)
        text["number"] = answer["number"] = number
        text["due"], answer["due"] = words.date()
    else:
        text["date"], answer["date"] = words.date()
    if kind == "meeting":
        text["name"], answer["name"] = words.person()
        text["topic"] = answer["topic"] = words.topic()
        text["room"] = answer["room"] = words.room()
        text["time"], answer["time"] = words.time()
    if kind == "delivery":
        text["code"] = answer["code"] = words.code()
    for field in OPTIONAL[kind]:
        if words.rng.random() < 0.12:
            text[field] = answer[field] = None
    return text, answer


def _sentence(template, text):
    def optional(match):
        field = re.search(r"\{(\w+)\}", match.group(1)).group(1)
        return match.group(1) if text[field] is not None else ""
    out = re.sub(r"\[([^\]]*)\]", optional, template).format(**text)
    return out[0].upper() + out[1:]


def _form(rng, kind, text):
    """(what separates its lines, the form): the fields in any order, one a line."""
    labels = [f for f in LABELS[kind] if text[f] is not None]
    rng.shuffle(labels)
    head = rng.choice([kind.capitalize(), kind.upper(), kind.capitalize() + " form"])
    joint = rng.choice(["\n", "\n", " / "])
    return joint, joint.join([head] + ["%s: %s" % (LABELS[kind][f], text[f]) for f in labels])


def _distractor(words):
    template = words.rng.choice(DISTRACTORS)
    draw = {
        "oname": lambda: words.person()[0], "ocity": words.city, "odate": lambda: words.date()[0],
        "oprice": lambda: words.money()[0], "ocode": words.code, "oitem": words.item,
        "oquantity": lambda: words.quantity()[0], "otime": lambda: words.time()[0],
        "phone": lambda: "+%d %d %d" % (words.rng.randint(30, 49), words.rng.randint(10, 99),
                                        words.rng.randint(1000, 999999)),
    }
    out = template.format(**{k: draw[k]() for k in re.findall(r"\{(\w+)\}", template)})
    return out[0].upper() + out[1:]


def _system(rng, kind):
    """(system prompt or None, fields of the answer in order)."""
    roll = rng.random()
    if roll < 0.5:
        return None, FIELDS[kind]
    if roll < 0.6:
        return rng.choice(SYSTEM_GENERAL), FIELDS[kind]
    fields = rng.sample(FIELDS[kind], rng.randint(2, 4))
    if rng.random() < 0.12:
        fields[rng.randrange(len(fields))] = rng.choice([f for f in ALL_FIELDS if f not in FIELDS[kind]])
    return rng.choice(SYSTEM_FIELDS).format(fields=", ".join(fields)), fields


def _row(words, kind):
    rng = words.rng
    text, answer = _fillers(words, kind)
    if rng.random() < 0.2:
        gap, note = _form(rng, kind, text)
    else:
        gap, note = " ", _sentence(rng.choice(TEMPLATES[kind]), text)
    for _ in range(rng.choices([0, 1, 2], weights=[45, 35, 20])[0]):
        extra = _distractor(words)
        note = note + gap + extra if rng.random() < 0.6 else extra + gap + note
    system, fields = _system(rng, kind)
    row = {"prompt": note}
    if system is not None:
        row["system"] = system
    row["expected"] = json.dumps({f: answer.get(f) for f in fields}, ensure_ascii=False, separators=(",", ":"))
    return row


def make_row(rng, held_out=False, kind=None):
    """{"prompt", "system"?, "expected"}: one note with its answer; held out, the answer has a never-trained word."""
    kind = kind or rng.choices(list(FIELDS), weights=[4, 3, 3, 3])[0]
    row = _row(Words(rng, held_out), kind)
    while held_out and not any(w.lower() in NEVER_TRAINED for w in re.findall(r"\w+", row["expected"])):
        row = _row(Words(rng, held_out), kind)
    return row


def rows(seed, n, held_out=False):
    """n rows, the same for the same seed; kinds take turns in held-out sets."""
    rng = random.Random(seed)
    kinds = list(FIELDS)
    return [make_row(rng, held_out, kinds[i % len(kinds)] if held_out else None) for i in range(n)]


if __name__ == "__main__":
    for example in rows(1, int(sys.argv[1]) if len(sys.argv) > 1 else 5, held_out="--held-out" in sys.argv):
        print(json.dumps(example, ensure_ascii=False))
