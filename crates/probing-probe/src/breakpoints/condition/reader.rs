//! The parser of conditions that are evaluated natively.
//!
//! What it does not understand is left to Python, which is right then.

/// A condition as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Compare(Subject, Operator, Constant),
    IsNone(Subject),
}

/// `name`, `name.attribute`, `len(name)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) attributes: Vec<String>,
    pub(crate) length: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constant {
    Int(i64),
    Float(f64),
    Text(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Constant(Constant),
    Operator(Operator),
    Dot,
    Open,
    Close,
}

/// The condition, if it is a simple one.
pub(crate) fn read(source: &str) -> Option<Tree> {
    let mut reader = Reader {
        tokens: tokens(source)?,
        at: 0,
    };
    let tree = reader.any()?;
    (reader.at == reader.tokens.len()).then_some(tree)
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn any(&mut self) -> Option<Tree> {
        let mut parts = vec![self.all()?];
        while self.takes_word("or") {
            parts.push(self.all()?);
        }
        Some(only(parts, Tree::Any))
    }

    fn all(&mut self) -> Option<Tree> {
        let mut parts = vec![self.not()?];
        while self.takes_word("and") {
            parts.push(self.not()?);
        }
        Some(only(parts, Tree::All))
    }

    fn not(&mut self) -> Option<Tree> {
        if self.takes_word("not") {
            return self.not().map(|part| Tree::Not(Box::new(part)));
        }
        if self.takes(&Token::Open) {
            let tree = self.any()?;
            return self.takes(&Token::Close).then_some(tree);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Option<Tree> {
        if let Some(Token::Constant(constant)) = self.peek().cloned() {
            self.at += 1;
            let operator = self.operator()?.turned();
            return Some(Tree::Compare(self.subject()?, operator, constant));
        }
        let subject = self.subject()?;
        if self.takes_word("is") {
            let is_not = self.takes_word("not");
            if subject.length || !self.takes_word("None") {
                return None;
            }
            let tree = Tree::IsNone(subject);
            return Some(if is_not {
                Tree::Not(Box::new(tree))
            } else {
                tree
            });
        }
        let operator = self.operator()?;
        let Some(Token::Constant(constant)) = self.peek().cloned() else {
            return None;
        };
        self.at += 1;
        Some(Tree::Compare(subject, operator, constant))
    }

    fn subject(&mut self) -> Option<Subject> {
        let name = self.name()?;
        if name == "len" && self.takes(&Token::Open) {
            let inner = self.subject()?;
            let is_whole = !inner.length && self.takes(&Token::Close);
            return is_whole.then_some(Subject {
                length: true,
                ..inner
            });
        }
        let mut attributes = Vec::new();
        while self.takes(&Token::Dot) {
            attributes.push(self.name()?);
        }
        Some(Subject {
            name,
            attributes,
            length: false,
        })
    }

    fn name(&mut self) -> Option<String> {
        const WORDS: [&str; 12] = [
            "and", "or", "not", "is", "in", "None", "True", "False", "if", "else", "lambda",
            "await",
        ];
        match self.peek()? {
            Token::Name(name) if !WORDS.contains(&name.as_str()) => {
                let name = name.clone();
                self.at += 1;
                Some(name)
            }
            _ => None,
        }
    }

    fn operator(&mut self) -> Option<Operator> {
        let Token::Operator(operator) = *self.peek()? else {
            return None;
        };
        self.at += 1;
        Some(operator)
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Name(name)) if name == word);
        self.at += usize::from(is_next);
        is_next
    }

    fn takes(&mut self, token: &Token) -> bool {
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }
}

impl Operator {
    /// For the other side.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

/// One part is what it is.
fn only(mut parts: Vec<Tree>, several: impl FnOnce(Vec<Tree>) -> Tree) -> Tree {
    match parts.len() {
        1 => parts.remove(0),
        _ => several(parts),
    }
}

fn tokens(source: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = source.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = token(rest, first, tokens.last())?;
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

fn token(rest: &str, first: char, last: Option<&Token>) -> Option<(Token, usize)> {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    if let Some((sign, operator)) = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign)) {
        return Some((Token::Operator(*operator), sign.len()));
    }
    match first {
        '(' => Some((Token::Open, 1)),
        ')' => Some((Token::Close, 1)),
        '.' if matches!(last, Some(Token::Name(_))) => Some((Token::Dot, 1)),
        '\'' | '"' => text(rest, first),
        '0'..='9' | '-' | '.' => number(rest),
        _ if first == '_' || first.is_alphabetic() => {
            let is_part = |char: char| char == '_' || char.is_alphanumeric();
            let length = rest.find(|char| !is_part(char)).unwrap_or(rest.len());
            let name = &rest[..length];
            // `b'…'`, `f"…"` are none of ours.
            let is_prefix = rest[length..].starts_with(['\'', '"']);
            (!is_prefix && name.is_ascii()).then(|| (Token::Name(name.to_owned()), length))
        }
        _ => None,
    }
}

/// A text without anything that needs to be understood.
fn text(rest: &str, quote: char) -> Option<(Token, usize)> {
    let inside = &rest[1..];
    let end = inside.find(quote)?;
    let text = &inside[..end];
    let is_plain = !text.contains(['\\', '\n']) && !inside[end + 1..].starts_with(quote);
    let token = Token::Constant(Constant::Text(text.to_owned()));
    is_plain.then_some((token, end + 2))
}

fn number(rest: &str) -> Option<(Token, usize)> {
    let is_part = |(at, char): (usize, char)| {
        let before = rest[..at].chars().next_back();
        char.is_ascii_digit()
            || char == '.'
            || char == 'e'
            || char == 'E'
            || (matches!(char, '-' | '+') && matches!(before, None | Some('e' | 'E')))
    };
    let end = rest.char_indices().find(|it| !is_part(*it));
    let length = end.map_or(rest.len(), |(at, _)| at);
    let follows = rest[length..].chars().next();
    if follows.is_some_and(|char| char == '_' || char.is_alphanumeric()) {
        return None;
    }
    let digits = &rest[..length];
    let unsigned = digits.trim_start_matches('-');
    let constant = if digits.contains(['.', 'e', 'E']) {
        Constant::Float(digits.parse().ok()?)
    } else if unsigned.len() > 1 && unsigned.starts_with('0') {
        // Python refuses such numbers.
        return None;
    } else {
        Constant::Int(digits.parse().ok()?)
    };
    Some((Token::Constant(constant), length))
}
